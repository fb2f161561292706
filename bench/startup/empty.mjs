// A process that only prints: the least time of any process.
console.log(JSON.stringify({}));
