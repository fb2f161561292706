// The scripts run on the pinned Node of devDependencies. Where its install script was blocked, npm falls back to the
// Node on the PATH without a word; this one says it.

const [major] = process.versions.node.split(".").map(Number);
if (major < 22) {
  console.error(
    `This ran on Node ${process.version}: the pinned one is missing. Run \`npm rebuild node\`, or allow its install script.`,
  );
  process.exit(1);
}
