//! Drift: changes by other actors, and how they are reverted.

mod conflicts;
mod controllers;
mod managers;
mod ownership;
mod single_restore;
mod unreadable;
