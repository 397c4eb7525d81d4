//! `bundle-webhook`: starts and joins the long-lived tasks of the pod.
//! Not here: rules (bundle-core), or what each task does (`server/`, `admission/`, `reconcile/`).
fn main() {}
