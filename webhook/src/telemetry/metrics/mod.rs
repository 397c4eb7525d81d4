//! The metrics of the process, and the page `/metrics`.

mod cache;
mod process;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use bundle_core::diagnostic::Code;
use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

pub use self::cache::{CacheLookup, CacheMetrics};

/// Content type of the page `/metrics`.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Upper bounds of the buckets for the duration of a review, in seconds. A review without requests
/// takes about half a millisecond, and a review that waits for a registry up to 10 s.
const REVIEW_BUCKETS: [f64; 11] = [
    0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 2.0, 10.0,
];
/// Upper bounds of the buckets for the duration of a reconcile, in seconds. A reconcile without
/// changes takes milliseconds, and a reconcile of a thousand objects over a slow connection takes
/// minutes.
const RECONCILE_BUCKETS: [f64; 9] = [0.005, 0.02, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0];

/// The outcome of a review.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReviewOutcome {
    /// Admitted, with or without warnings.
    Admitted,
    /// Rejected by a rule.
    Refused,
    /// The result is unknown, because a dependency did not respond.
    CannotTell,
    /// The request was not a valid review.
    Invalid,
}

impl ReviewOutcome {
    fn label(self) -> &'static str {
        match self {
            Self::Admitted => "admitted",
            Self::Refused => "refused",
            Self::CannotTell => "cannot_tell",
            Self::Invalid => "invalid",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReviewLabels {
    kind: String,
    operation: String,
    outcome: &'static str,
    /// Code of the first finding. The code is empty if the review has no finding.
    code: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReconcileLabels {
    kind: &'static str,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabel {
    kind: &'static str,
}

/// All metrics of the process. Cloning is cheap.
#[derive(Debug, Clone)]
pub struct Metrics {
    registry: Arc<Registry>,
    /// Metrics of the content cache.
    pub cache: CacheMetrics,
    reviews: Family<ReviewLabels, Counter>,
    review_duration: Histogram,
    reconciles: Family<ReconcileLabels, Counter>,
    reconcile_duration: Family<KindLabel, Histogram, fn() -> Histogram>,
    drift_corrections: Counter,
    authorization_disagreements: Counter,
    unreadable: Family<KindLabel, Gauge>,
    certificate_not_after: Gauge,
    refresh_errors: Counter,
    unknown_callers: Counter,
    is_leader: Gauge,
    resident_memory: Gauge<u64, AtomicU64>,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::default();
        let cache = CacheMetrics::registered(&mut registry);
        let reviews = Family::default();
        registry.register(
            "bundle_reviews",
            "Admission reviews by kind, operation, outcome and code",
            reviews.clone(),
        );
        let review_duration = Histogram::new(REVIEW_BUCKETS);
        registry.register_with_unit(
            "bundle_review_duration",
            "Time from the last byte of a review to its response",
            Unit::Seconds,
            review_duration.clone(),
        );
        let reconciles = Family::default();
        registry.register(
            "bundle_reconciles",
            "Reconciles by kind and outcome",
            reconciles.clone(),
        );
        let reconcile_duration: Family<_, _, fn() -> Histogram> =
            Family::new_with_constructor(|| Histogram::new(RECONCILE_BUCKETS));
        registry.register_with_unit(
            "bundle_reconcile_duration",
            "Duration of a reconcile",
            Unit::Seconds,
            reconcile_duration.clone(),
        );
        let drift_corrections = Counter::default();
        registry.register(
            "bundle_drift_corrections",
            "Objects restored after another actor changed or deleted them",
            drift_corrections.clone(),
        );
        let authorization_disagreements = Counter::default();
        registry.register(
            "bundle_authorization_disagreements",
            "Objects for which access reviews and RBAC in the dry run as the requester disagree",
            authorization_disagreements.clone(),
        );
        let unreadable = Family::default();
        registry.register(
            "bundle_unreadable_objects",
            "Stored objects of the project's own kinds that are invalid",
            unreadable.clone(),
        );
        let certificate_not_after = Gauge::default();
        registry.register_with_unit(
            "tls_certificate_not_after",
            "Expiry of the serving certificate, as Unix time",
            Unit::Seconds,
            certificate_not_after.clone(),
        );
        let refresh_errors = Counter::default();
        registry.register(
            "bundle_refresh_errors",
            "Failed checks of certificates, keys and webhook registrations",
            refresh_errors.clone(),
        );
        let unknown_callers = Counter::default();
        registry.register(
            "bundle_unknown_callers",
            "Unauthenticated requests to the admission port, answered with 404",
            unknown_callers.clone(),
        );
        let is_leader = Gauge::default();
        registry.register(
            "bundle_is_leader",
            "1 while this replica is the leader",
            is_leader.clone(),
        );
        let resident_memory = Gauge::default();
        registry.register_with_unit(
            "process_resident_memory",
            "Resident memory of this process",
            Unit::Bytes,
            resident_memory.clone(),
        );
        Self {
            registry: Arc::new(registry),
            cache,
            reviews,
            review_duration,
            reconciles,
            reconcile_duration,
            drift_corrections,
            authorization_disagreements,
            unreadable,
            certificate_not_after,
            refresh_errors,
            unknown_callers,
            is_leader,
            resident_memory,
        }
    }
}

impl Metrics {
    /// Counts one review. The labels `kind` and `operation` must be known values or "other",
    /// because requests can contain any text.
    pub fn review(
        &self,
        kind: &str,
        operation: &str,
        outcome: ReviewOutcome,
        code: Option<Code>,
        took: Duration,
    ) {
        self.reviews
            .get_or_create(&ReviewLabels {
                kind: kind.to_owned(),
                operation: operation.to_owned(),
                outcome: outcome.label(),
                code: code.map_or("", |code| code.id),
            })
            .inc();
        self.review_duration.observe(took.as_secs_f64());
    }

    /// Counts one reconcile of an object of `kind`.
    pub fn reconcile(&self, kind: &'static str, succeeded: bool, took: Duration) {
        let outcome = if succeeded { "succeeded" } else { "failed" };
        self.reconciles
            .get_or_create(&ReconcileLabels { kind, outcome })
            .inc();
        self.reconcile_duration
            .get_or_create(&KindLabel { kind })
            .observe(took.as_secs_f64());
    }

    /// Counts objects that were restored after drift.
    pub fn drift_corrected(&self, objects: u64) {
        self.drift_corrections.inc_by(objects);
    }

    /// Counts objects for which access reviews and dry runs disagree.
    pub fn authorization_disagreed(&self, objects: u64) {
        self.authorization_disagreements.inc_by(objects);
    }

    /// Sets the number of stored objects of `kind` that are invalid.
    pub fn unreadable(&self, kind: &'static str, objects: usize) {
        self.unreadable
            .get_or_create(&KindLabel { kind })
            .set(i64::try_from(objects).unwrap_or(i64::MAX));
    }

    /// Sets the expiry of the current certificate, in Unix seconds.
    pub fn certificate_ends(&self, unix_seconds: i64) {
        self.certificate_not_after.set(unix_seconds);
    }

    /// Counts a failed check of certificates, keys and registrations.
    pub fn refresh_failed(&self) {
        self.refresh_errors.inc();
    }

    /// Counts an unauthenticated request to the admission port.
    pub fn unknown_caller(&self) {
        self.unknown_callers.inc();
    }

    /// Sets whether this replica is the leader.
    pub fn leading(&self, leads: bool) {
        self.is_leader.set(i64::from(leads));
    }

    /// Returns the page in OpenMetrics text format.
    pub fn page(&self) -> String {
        if let Some(bytes) = process::resident_memory() {
            self.resident_memory.set(bytes);
        }
        let mut page = String::new();
        match text::encode(&mut page, &self.registry) {
            Ok(()) => page,
            // Writing to a String cannot fail. The encoder reports no other error.
            Err(std::fmt::Error) => String::from("# EOF\n"),
        }
    }
}

#[cfg(test)]
mod tests {
    use bundle_core::diagnostic::codes;

    use super::*;

    #[test]
    fn page_has_all_metrics_and_the_end_marker_of_openmetrics() {
        let metrics = Metrics::default();
        let took = Duration::from_millis(3);
        metrics.review("Bundle", "UPDATE", ReviewOutcome::Admitted, None, took);
        metrics.review(
            "Bundle",
            "CREATE",
            ReviewOutcome::CannotTell,
            Some(codes::cluster::UNREACHABLE),
            took,
        );
        metrics.reconcile("BundleDeployment", false, took);
        metrics.drift_corrected(2);
        metrics.authorization_disagreed(3);
        metrics.certificate_ends(1_800_000_000);
        metrics.leading(true);
        metrics.cache.looked_up("content", CacheLookup::Miss);
        metrics.cache.evicted("rendered");
        metrics.cache.holds("content", 2, 300);
        metrics.cache.limit(1000);
        let page = metrics.page();
        for line in [
            r#"bundle_reviews_total{kind="Bundle",operation="UPDATE",outcome="admitted",code=""} 1"#,
            r#"bundle_reviews_total{kind="Bundle",operation="CREATE",outcome="cannot_tell",code="BUNDLE-CLUSTER-001"} 1"#,
            r#"bundle_reconciles_total{kind="BundleDeployment",outcome="failed"} 1"#,
            "bundle_drift_corrections_total 2",
            "bundle_authorization_disagreements_total 3",
            "tls_certificate_not_after_seconds 1800000000",
            "bundle_is_leader 1",
            r#"bundle_cache_lookups_total{copy="content",outcome="miss"} 1"#,
            r#"bundle_cache_evictions_total{copy="rendered"} 1"#,
            r#"bundle_cache_copies{copy="content"} 2"#,
            r#"bundle_cache_size_bytes{copy="content"} 300"#,
            "bundle_cache_limit_bytes 1000",
        ] {
            assert!(page.lines().any(|found| found == line), "{line}\n{page}");
        }
        assert!(page.ends_with("# EOF\n"));
    }

    #[test]
    fn page_has_the_resident_memory() {
        let page = Metrics::default().page();
        let line = page
            .lines()
            .find(|line| line.starts_with("process_resident_memory_bytes "))
            .unwrap();
        let bytes: u64 = line.rsplit(' ').next().unwrap().parse().unwrap();
        assert!(bytes > 1024 * 1024, "{line}");
    }
}
