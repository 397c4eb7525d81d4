//! Verbs for bundle-webhook and its review of objects.

mod check;
mod doctor;
