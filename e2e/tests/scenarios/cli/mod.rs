//! The plugin on a real API server: installation of the webhook, flags and lists, and the commands
//! of the documentation.

mod doctor;
mod guides;
pub(super) mod install;
mod krew;
mod page;
mod readme;
mod shells;
mod usage;
