//! Packages of operators and of other projects, as they were published.

mod configuration;
mod operators;
mod real_operators;
mod real_packages;
