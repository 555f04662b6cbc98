//! The webhook behind a real API server, with real clients.

mod configure;
mod dev;
mod fixtures;
mod hold;
mod rollout;
mod stage;
