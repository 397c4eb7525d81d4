//! The subjects. A scenario fails by panicking, so that its cluster's logs are kept.

mod guest;
mod harness;
mod story;
