const headwise = require("headwise");
const { quantized } = require("headwise/quantized");
const weights = require("headwise/weights");

import("./suite.mjs")
  .then(({ runSuite }) => runSuite({ headwise, weights, load: { quantized } }))
  .then((report) => console.log(JSON.stringify(report)));
