//! Tests of the webhook: reviews in, reviews out, no sockets.

mod autoscaler;
mod cases;
mod configure;
mod hold;
mod properties;
mod recorded;
mod review;
mod serving;
mod texts;
mod world;
