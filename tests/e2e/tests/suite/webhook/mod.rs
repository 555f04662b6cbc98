//! The webhook behind a real API server, with real clients.

mod configure;
mod hold;
mod stage;
