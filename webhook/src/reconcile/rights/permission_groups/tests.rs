use std::sync::atomic::{AtomicBool, Ordering};

use bundle_core::plan::inventory::Inventory;
use bundle_core::plan::inventory::permission_groups::{GroupKey, ReviewTerms};
use bundle_core::review::Requester;
use http::{Request, Response};
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::*;

const INTERVAL: Duration = Duration::from_secs(600);
const LIMIT: Duration = Duration::from_secs(5);

fn terms() -> ReviewTerms {
    ReviewTerms {
        requesters: vec![Requester {
            user: "ana".to_owned(),
            ..Requester::default()
        }],
        class: "plain".to_owned(),
        bundle_class: "plain".to_owned(),
        service_account: None,
    }
}

fn failed() -> Response<Body> {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure",
        "code": 500, "reason": "InternalError", "message": "failed",
    });
    let body = Body::from(status.to_string().into_bytes());
    Response::builder().status(500).body(body).unwrap()
}

/// A group with the members `a` and `b`, and the API server that checks its permissions.
struct TestGroup {
    client: Client,
    apis: Apis,
    states: InstalledStates,
    schedule: RightsSchedule,
    /// The names of the BundleDeployments whose reconciles were started.
    woken: mpsc::UnboundedReceiver<String>,
    /// The verb, namespace and resource of each access review.
    reviews: mpsc::UnboundedReceiver<String>,
    /// If true, each request fails.
    is_failing: Arc<AtomicBool>,
    /// If true, reviews for namespace `two` get no response.
    is_stalling: Arc<AtomicBool>,
}

impl TestGroup {
    /// `denied` is the access review that the API server denies.
    fn new(denied: &'static str) -> Self {
        let (service, mut server) = tower_test::mock::pair::<Request<Body>, Response<Body>>();
        let (sender, reviews) = mpsc::unbounded_channel();
        let is_failing = Arc::new(AtomicBool::new(false));
        let is_stalling = Arc::new(AtomicBool::new(false));
        let (fails, stalls) = (is_failing.clone(), is_stalling.clone());
        tokio::spawn(async move {
            let mut stalled = Vec::new();
            while let Some((request, reply)) = server.next_request().await {
                let (head, body) = request.into_parts();
                let answer = if head.uri.path() == "/api/v1" {
                    json!({
                        "kind": "APIResourceList", "groupVersion": "v1",
                        "resources": [{
                            "name": "configmaps", "singularName": "", "namespaced": true,
                            "kind": "ConfigMap", "verbs": ["get"],
                        }],
                    })
                } else {
                    let body = body.collect_bytes().await.unwrap();
                    let review: Value = serde_json::from_slice(&body).unwrap();
                    let of = &review["spec"]["resourceAttributes"];
                    let text = |field: &str| of[field].as_str().unwrap_or_default();
                    let (verb, namespace) = (text("verb"), text("namespace"));
                    let question = format!("{verb} {namespace} {}", text("resource"));
                    let is_allowed = question != denied;
                    let has_response = namespace != "two" || !stalls.load(Ordering::Relaxed);
                    sender.send(question).ok();
                    if !has_response {
                        stalled.push(reply);
                        continue;
                    }
                    json!({"spec": {}, "status": {"allowed": is_allowed}})
                };
                if fails.load(Ordering::Relaxed) {
                    reply.send_response(failed());
                    continue;
                }
                let body = Body::from(answer.to_string().into_bytes());
                reply.send_response(Response::new(body));
            }
        });
        let client = Client::new(service, "default");
        let (wake, woken) = mpsc::unbounded_channel();
        let group = Self {
            apis: Apis::new(client.clone()),
            client,
            states: InstalledStates::new(wake),
            schedule: RightsSchedule::default(),
            woken,
            reviews,
            is_failing,
            is_stalling,
        };
        for (name, namespaces) in [("a", &["one"][..]), ("b", &["one", "two"][..])] {
            let mut inventory = Inventory::new(name);
            for namespace in namespaces {
                inventory.record(format!("ConfigMap/{namespace}/x"), "1");
                inventory.record(format!("ConfigMap/{namespace}/y"), "2");
            }
            group.states.set_inventory(name, Arc::new(inventory));
            group.join(name);
        }
        group
    }

    fn join(&self, name: &str) {
        let member = GroupMember {
            uid: format!("uid-{name}"),
            name: name.to_owned(),
        };
        self.schedule
            .record_check(&member.uid, Instant::now(), Duration::ZERO);
        assert!(self.schedule.join(member, terms()));
    }

    fn key() -> GroupKey {
        terms().key()
    }

    /// Executes one run. Returns the access reviews, and the names of the BundleDeployments
    /// whose reconciles were started.
    async fn run(&mut self) -> (Vec<String>, Vec<String>) {
        self.run_within(LIMIT).await
    }

    async fn run_within(&mut self, limit: Duration) -> (Vec<String>, Vec<String>) {
        let (mut runs, _) = self
            .schedule
            .begin_runs(Instant::now(), &mut HashSet::new());
        let run = runs.pop().unwrap();
        let check = GroupCheck {
            client: &self.client,
            apis: &self.apis,
            states: &self.states,
            schedule: &self.schedule,
            system_namespace: "bundle-system",
            run: &run,
        };
        check.run(limit, INTERVAL).await;
        let (mut reviews, mut woken) = (Vec::new(), Vec::new());
        while let Ok(review) = self.reviews.try_recv() {
            reviews.push(review);
        }
        while let Ok(name) = self.woken.try_recv() {
            woken.push(name);
        }
        reviews.sort();
        (reviews, woken)
    }

    fn members(&self) -> Vec<String> {
        let members = self.schedule.members(Self::key(), None, PAGE).into_iter();
        members.map(|member| member.name).collect()
    }

    /// Returns the time until the next check of the group.
    fn delay(&self) -> Duration {
        let now = Instant::now();
        let (runs, next) = self.schedule.begin_runs(now, &mut HashSet::new());
        assert!(runs.is_empty());
        next.unwrap() - now
    }
}

#[tokio::test]
async fn each_review_is_sent_once_for_all_members() {
    let mut group = TestGroup::new("");
    let (reviews, woken) = group.run().await;
    assert_eq!(
        reviews,
        [
            "create one configmaps",
            "create two configmaps",
            "delete one configmaps",
            "delete two configmaps",
            "patch one configmaps",
            "patch two configmaps",
            "use bundle-system provisionerclasses",
        ]
    );
    assert!(woken.is_empty());
    assert_eq!(group.members(), ["a", "b"]);
    assert!(group.delay() > INTERVAL / 2);
}

#[tokio::test]
async fn denied_review_starts_only_the_reconciles_that_need_the_permission() {
    let mut group = TestGroup::new("patch two configmaps");
    let (_, woken) = group.run().await;
    assert_eq!(woken, ["b"]);
    assert_eq!(group.members(), ["a"]);
    // The reconcile checks the permissions at once.
    let wait = group.schedule.wait("uid-b", Instant::now(), INTERVAL);
    assert_eq!(wait, Duration::ZERO);
}

#[tokio::test]
async fn denied_terms_start_the_reconciles_of_all_members() {
    let mut group = TestGroup::new("use bundle-system provisionerclasses");
    let (reviews, woken) = group.run().await;
    assert_eq!(reviews, ["use bundle-system provisionerclasses"]);
    assert_eq!(woken, ["a", "b"]);
    assert!(group.members().is_empty());
}

#[tokio::test]
async fn member_with_a_running_reconcile_is_not_checked() {
    let mut group = TestGroup::new("patch two configmaps");
    group.schedule.leave("uid-b");
    let (reviews, woken) = group.run().await;
    assert!(woken.is_empty());
    assert!(!reviews.iter().any(|review| review.contains("two")));
}

#[tokio::test]
async fn members_that_cannot_be_checked_are_reconciled() {
    let mut group = TestGroup::new("");
    let mut unknown = Inventory::new("a");
    unknown.record("Secret/one/x", "1");
    group.states.set_inventory("a", Arc::new(unknown));
    group.states.set_inventory("b", Arc::default());
    let (_, woken) = group.run().await;
    assert_eq!(woken, ["a", "b"]);
}

#[tokio::test]
async fn check_continues_after_a_member_without_a_response() {
    let mut group = TestGroup::new("");
    group.is_stalling.store(true, Ordering::Relaxed);
    let (_, woken) = group.run_within(Duration::from_secs(1)).await;
    assert_eq!(woken, ["b"]);
    assert_eq!(group.members(), ["a"]);
    // The next run begins at once. No member follows the member without a response.
    let (reviews, woken) = group.run().await;
    assert_eq!(reviews, ["use bundle-system provisionerclasses"]);
    assert!(woken.is_empty());
    assert!(group.delay() > INTERVAL / 2);
}

#[tokio::test]
async fn failed_review_of_the_terms_is_retried_later_without_reconciles() {
    let mut group = TestGroup::new("");
    group.is_failing.store(true, Ordering::Relaxed);
    let (_, woken) = group.run().await;
    assert!(woken.is_empty());
    assert_eq!(group.members(), ["a", "b"]);
    let delay = group.delay();
    assert!(delay < INTERVAL / 2, "{delay:?}");
}
