const headwise = require("headwise");
const latents = require("headwise/latent");
const { quantized } = require("headwise/quantized");
const weights = require("headwise/weights");
const models = require("headwise/models");
const text = require("headwise/text");
const inspect = require("headwise/inspect");
const configure = require("headwise/configure");
const doctor = require("headwise/doctor");

import("./suite.mjs")
  .then(({ runSuite }) => runSuite({ headwise, weights, models, latents, text, inspect, configure, doctor, load: { quantized } }))
  .then((report) => console.log(JSON.stringify(report)));
