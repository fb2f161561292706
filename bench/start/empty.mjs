// A process that does nothing but print: what every other one takes at least.
console.log(JSON.stringify({}));
