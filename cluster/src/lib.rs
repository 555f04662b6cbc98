//! The eyes of offhours: client, discovery, reflectors, the View, events.
