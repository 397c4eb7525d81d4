//! The configuration of the pod: its flags, the settings that follow from them, and the stamp key.

pub mod args;
pub mod content;
pub mod settings;
pub mod stamp_key;
