//! The webhook behind a real API server, with real clients.

mod configure;
mod dev;
mod hold;
mod rollout;
mod stage;
