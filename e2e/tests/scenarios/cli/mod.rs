//! The plugin on a real API server: installation of the webhook, flags and lists, and the commands
//! of the documentation.

mod doctor;
mod guides;
pub(super) mod install;
mod krew;
pub(super) mod page;
pub(super) mod readme;
mod shells;
mod usage;
