//! The configuration of the pod: its flags, and the settings that follow from them.

pub mod args;
pub mod content;
pub mod settings;
