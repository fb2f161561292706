// The scripts run on the pinned Node of devDependencies. Where its install script was blocked, npm falls back to the
// Node on the PATH without a word; this one says it.

const [major, minor] = process.versions.node.split(".").map(Number);
// From here on Node runs TypeScript as it is.
if (major < 22 || (major === 22 && minor < 18)) {
  console.error(
    `This ran on Node ${process.version}: the pinned one is missing. Run \`npm rebuild node\`, or allow its install script.`,
  );
  process.exit(1);
}
