//! Drift: changes by other actors, and the correction of these changes.

mod conflicts;
mod controllers;
mod managers;
mod ownership;
mod single_restore;
mod unreadable;
