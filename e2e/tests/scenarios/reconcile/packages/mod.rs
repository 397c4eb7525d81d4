//! Charts, configured packages, and packages of other projects as they were published.

mod chart_schemas;
mod charts;
mod configuration;
mod operators;
mod real_operators;
mod real_packages;
