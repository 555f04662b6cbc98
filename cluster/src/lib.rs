//! The eyes of offhours: client, discovery, reflectors, the View, events.
//!
//! One [`follow::Follower`] keeps one [`view::View`] like the cluster; scheduler and webhook read it. What is read of an
//! object is what `shared` asks for, skipped while it is parsed, so that thousands of large objects take little memory.

pub mod call;
pub mod changes;
pub mod client;
pub mod events;
pub mod follow;
pub mod gate;
pub mod intern;
pub mod item;
pub mod reflector;
pub mod roots;
pub mod schedules;
pub mod store;
#[cfg(test)]
mod tests;
pub mod view;
pub mod wire;
