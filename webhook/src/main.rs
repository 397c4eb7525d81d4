//! `bundle-webhook`: reads its arguments and runs the pod.
//! Not here: anything else (lib).
fn main() {}
