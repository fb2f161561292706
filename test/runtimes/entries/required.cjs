const headwise = require("headwise");
const latents = require("headwise/latent");
const { quantized } = require("headwise/quantized");
const weights = require("headwise/weights");
const heads = require("headwise/heads");
const sessions = require("headwise/sessions");
const models = require("headwise/models");
const encoders = require("headwise/encoders");
const text = require("headwise/text");
const inspect = require("headwise/inspect");
const configure = require("headwise/configure");

import("./suite.mjs")
  .then(({ runSuite }) => runSuite({ headwise, weights, heads, sessions, models, encoders, latents, text, inspect, configure, load: { quantized } }))
  .then((report) => console.log(JSON.stringify(report)));
