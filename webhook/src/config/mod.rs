//! The configuration of the pod: its flags, and the settings that are computed from the flags.

pub mod args;
pub mod settings;
