// npm runs scripts with the Node of devDependencies. If its install script was blocked, npm silently takes the Node of the
// PATH instead; this fails if that one is too old.

const [major, minor] = process.versions.node.split(".").map(Number);
// Since this version, Node runs TypeScript as it is.
if (major < 22 || (major === 22 && minor < 18)) {
  console.error(
    `This ran on Node ${process.version}: the pinned one is missing. Run \`npm rebuild node\`, or allow its install script.`,
  );
  process.exit(1);
}
