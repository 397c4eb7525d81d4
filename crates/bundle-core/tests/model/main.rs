//! Model of a cluster, explored state by state. Reconciles execute the steps of their plans one at
//! a time. Other events happen between any two steps:
//!
//! - A user changes the template, the class, the settings or an object, or deletes the
//!   BundleDeployment.
//! - A user withdraws permissions, an approval or trust in a signature.
//! - A tag moves, a watch is lost, a request fails, or the process stops.
//!
//! `cargo xtask model` explores more states of the model. Environment variables set the limits:
//! `MODEL_STATES` (number of states), `MODEL_DISTURBANCES` (number of disturbances on each path)
//! and `MODEL_ORDER` (`breadth` or `depth`).

#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::struct_excessive_bools,
    reason = "the test measures and prints its duration; a state is a set of flags"
)]

mod conditions;
mod disturb;
mod explore;
mod install;
mod removal;
mod state;

use explore::{Limits, Order, explore};

fn explored(limits: Limits) -> bool {
    let explored = explore(limits);
    let end = if explored.is_complete {
        "which are all"
    } else {
        "the limit"
    };
    println!(
        "{} states, {end}; depth {}; at most {} disturbances, {:?} first; {} plans; {:.1} s",
        explored.states,
        explored.depth,
        limits.disturbances,
        limits.order,
        explored.plans,
        explored.time.as_secs_f64()
    );
    explored.is_complete
}

#[test]
fn all_states_within_three_disturbances_keep_the_invariants_and_converge() {
    let is_complete = explored(Limits {
        states: usize::MAX,
        disturbances: 3,
        order: Order::Breadth,
    });
    assert!(is_complete);
}

#[test]
fn a_million_states_on_long_paths_keep_the_invariants_and_converge() {
    let is_complete = explored(Limits {
        states: 1_000_000,
        disturbances: 5,
        order: Order::Depth,
    });
    assert!(!is_complete);
}

/// Runs the search of `cargo xtask model`.
#[test]
#[ignore = "runs for minutes: cargo xtask model runs it"]
fn states_within_the_limits_keep_the_invariants_and_converge() {
    let text = |name| std::env::var(name).unwrap_or_default();
    explored(Limits {
        states: text("MODEL_STATES").parse().unwrap(),
        disturbances: text("MODEL_DISTURBANCES").parse().unwrap(),
        order: if text("MODEL_ORDER") == "depth" {
            Order::Depth
        } else {
            Order::Breadth
        },
    });
}
