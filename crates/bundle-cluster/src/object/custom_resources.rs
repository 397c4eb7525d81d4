//! Reads the custom resources of a CustomResourceDefinition page by page, within limits. Validates
//! the custom resources against a new version of this definition. The rules are in
//! `bundle_core::plan::crd_upgrade`.

use bundle_core::names::NameKind;
use bundle_core::plan::crd_upgrade::existing::{
    ExistingObjectList, ExistingObjects, PAGE_SIZE, Unvalidated, ValidationLimits,
};
use kube::Client;
use kube::api::ListParams;
use kube::core::Request;
use serde::Deserialize;
use serde_json::Value;
use tokio::time::Instant;

use crate::blocking;
use crate::clock;
use crate::responses::SmallPages;
use crate::url::parse;

/// Validation of the custom resources of all CustomResourceDefinitions in the content of one
/// bundle. The limits apply to all of these definitions together.
pub struct ResourceValidation<'a> {
    client: &'a Client,
    limits: ValidationLimits,
    until: Instant,
    objects: u64,
    bytes: u64,
}

/// Result of the validation for one definition, or the reason why the validation is incomplete.
pub type ValidationResult<'d> = Result<ExistingObjects<'d>, Unvalidated>;

#[derive(Deserialize)]
struct Page {
    metadata: PageMetadata,
    items: Vec<Value>,
}

#[derive(Deserialize)]
struct PageMetadata {
    #[serde(rename = "continue", default)]
    next: Option<String>,
}

impl<'a> ResourceValidation<'a> {
    /// Returns a validation whose time limit starts now. `client` reads the custom resources, with
    /// the permissions of the user of `client`.
    pub fn new(client: &'a Client, limits: ValidationLimits) -> Self {
        Self {
            client,
            limits,
            until: clock::runtime_instant() + limits.time,
            objects: 0,
            bytes: 0,
        }
    }

    /// Waits for `work`, and returns its result. Fails when the time limit of the validation is
    /// reached.
    pub async fn in_time<F: Future>(&self, work: F) -> Result<F::Output, Unvalidated> {
        let done = tokio::time::timeout_at(self.until, work).await;
        done.map_err(|_| Unvalidated::Time(self.limits.time))
    }

    /// Fails if the time limit of the validation is reached.
    fn check_time(&self) -> Result<(), Unvalidated> {
        if clock::runtime_instant() >= self.until {
            return Err(Unvalidated::Time(self.limits.time));
        }
        Ok(())
    }

    /// Validates the objects of the definition `live` against the definition `new`. `lists`
    /// contains the versions to read. `can_be_named` receives the namespace of an object, and
    /// returns true if messages may contain the name of the object.
    pub async fn validate<'d>(
        &mut self,
        live: &Value,
        new: &'d Value,
        lists: &[ExistingObjectList],
        can_be_named: impl Fn(Option<&str>) -> bool,
    ) -> Result<ValidationResult<'d>, kube::Error> {
        let mut found = ExistingObjects::new(new);
        for list in lists {
            let path = path(live, &list.read)?;
            let mut parameters = ListParams::default().limit(PAGE_SIZE);
            loop {
                let page = match self.page(&path, &parameters).await? {
                    Ok(page) => page,
                    Err(why) => return Ok(Err(why)),
                };
                let validated = blocking::run(|| {
                    page.items.iter().try_for_each(|object| {
                        let namespace = object["metadata"]["namespace"].as_str();
                        let can_be_named = can_be_named(namespace);
                        found.add(object, &list.versions, can_be_named, || self.check_time())
                    })
                });
                if let Err(why) = validated {
                    return Ok(Err(why));
                }
                match page.metadata.next.filter(|token| !token.is_empty()) {
                    Some(token) => parameters.continue_token = Some(token),
                    None => break,
                }
            }
        }
        Ok(Ok(found))
    }

    /// Reads one page, and counts its objects and bytes.
    async fn page(
        &mut self,
        path: &str,
        parameters: &ListParams,
    ) -> Result<Result<Page, Unvalidated>, kube::Error> {
        let request = Request::new(path).list(parameters);
        let mut request = request.map_err(kube::Error::BuildRequest)?;
        request.extensions_mut().insert(SmallPages);
        let text = match self.in_time(self.client.request_text(request)).await {
            Ok(text) => text?,
            Err(why) => return Ok(Err(why)),
        };
        let page: Page =
            blocking::run(|| serde_json::from_str(&text)).map_err(kube::Error::SerdeError)?;
        self.bytes = self.bytes.saturating_add(text.len() as u64);
        self.objects = self.objects.saturating_add(page.items.len() as u64);
        if self.objects > self.limits.objects {
            return Ok(Err(Unvalidated::Objects(self.limits.objects)));
        }
        if self.bytes > self.limits.bytes {
            return Ok(Err(Unvalidated::Bytes(self.limits.bytes)));
        }
        Ok(Ok(page))
    }
}

/// Returns the path of all objects of the definition in this version.
fn path(definition: &Value, version: &str) -> Result<String, kube::Error> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let spec = &definition["spec"];
    let (group, plural) = (text(&spec["group"]), text(&spec["names"]["plural"]));
    for (kind, part) in [
        (NameKind::Subdomain, group.as_str()),
        (NameKind::Label, version),
        (NameKind::Label, plural.as_str()),
    ] {
        parse(kind, part).map_err(kube::Error::BuildRequest)?;
    }
    Ok(format!("/apis/{group}/{version}/{plural}"))
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use http::{Request as HttpRequest, Response};
    use kube::client::Body;
    use serde_json::json;
    use tower::service_fn;

    use super::*;

    const LIMITS: ValidationLimits = ValidationLimits {
        objects: 1_200,
        bytes: 1 << 20,
        time: Duration::from_secs(30),
    };

    /// Returns a client of an API server with `count` jugs (custom resources of kind `Jug`), and
    /// the queries that the server receives. Every tenth jug is invalid, because it has too many
    /// litres. `size` is the number of bytes of additional text in each jug.
    fn jugs(count: usize, size: usize) -> (Client, Arc<Mutex<Vec<String>>>) {
        let queries = Arc::new(Mutex::new(Vec::new()));
        let seen = queries.clone();
        let service = service_fn(move |request: HttpRequest<Body>| {
            let query = request.uri().query().unwrap_or_default().to_owned();
            let path = request.uri().path().to_owned();
            seen.lock().unwrap().push(format!("{path}?{query}"));
            async move {
                let parameter = |name: &str| {
                    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
                    pairs
                        .find(|(key, _)| *key == name)
                        .map(|(_, value)| value.parse::<usize>().unwrap())
                };
                let first = parameter("continue").unwrap_or(0);
                let last = count.min(first + parameter("limit").unwrap());
                let items: Vec<Value> = (first..last)
                    .map(|number| {
                        let litres = if number % 10 == 9 { 10 } else { 1 };
                        json!({
                            "metadata": {"name": format!("jug-{number}"), "namespace": format!("n{}", number % 20)},
                            "spec": {"litres": litres, "note": "x".repeat(size)},
                        })
                    })
                    .collect();
                let next = if last < count {
                    last.to_string()
                } else {
                    String::new()
                };
                let page = json!({"kind": "JugList", "apiVersion": "example.com/v1", "metadata": {"continue": next}, "items": items});
                let response = Response::builder().header("content-type", "application/json");
                Ok::<_, std::convert::Infallible>(
                    response
                        .body(Body::from(page.to_string().into_bytes()))
                        .unwrap(),
                )
            }
        });
        (Client::new(service, "default"), queries)
    }

    fn definition() -> Value {
        let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "litres": {"type": "integer", "maximum": 9}, "note": {"type": "string"},
        }}}});
        json!({"spec": {"group": "example.com", "names": {"plural": "jugs"}, "versions": [
            {"name": "v1", "served": true, "schema": {"openAPIV3Schema": schema}},
        ]}})
    }

    async fn validated(count: usize, size: usize) -> (Result<String, Unvalidated>, Vec<String>) {
        let (client, queries) = jugs(count, size);
        let definition = definition();
        let lists = [ExistingObjectList {
            read: "v1".to_owned(),
            versions: vec!["v1".to_owned()],
        }];
        let mut validation = ResourceValidation::new(&client, LIMITS);
        let found = validation
            .validate(&definition, &definition, &lists, |namespace| {
                namespace == Some("n9")
            })
            .await
            .unwrap();
        let queries = queries.lock().unwrap().clone();
        (
            found.map(|found| found.message("jugs.example.com")),
            queries,
        )
    }

    #[tokio::test]
    async fn all_pages_are_validated_and_objects_elsewhere_are_only_counted() {
        let (message, queries) = validated(1_200, 0).await;
        assert_eq!(
            queries,
            [
                "/apis/example.com/v1/jugs?&limit=500",
                "/apis/example.com/v1/jugs?&limit=500&continue=500",
                "/apis/example.com/v1/jugs?&limit=500&continue=1000",
            ]
        );
        let message = message.unwrap();
        assert!(message.contains("existing custom object n9/jug-9 failed validation for new schema version v1: ^.spec.litres: maximum"), "{message}");
        assert!(message.ends_with("and 57 more existing custom objects; existing custom objects in other namespaces (60) failed validation for new schema version v1: ^.spec.litres: maximum"), "{message}");
    }

    #[tokio::test]
    async fn too_many_objects_and_bytes_end_the_validation() {
        let (found, queries) = validated(1_000_000, 0).await;
        assert_eq!(found, Err(Unvalidated::Objects(1_200)));
        assert_eq!(queries.len(), 3);
        let (found, queries) = validated(1_000_000, 4 << 10).await;
        assert_eq!(found, Err(Unvalidated::Bytes(1 << 20)));
        assert_eq!(queries.len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn server_without_a_response_ends_the_validation_in_time() {
        let service = service_fn(|_: HttpRequest<Body>| {
            std::future::pending::<Result<Response<Body>, std::convert::Infallible>>()
        });
        let client = Client::new(service, "default");
        let definition = definition();
        let lists = [ExistingObjectList {
            read: "v1".to_owned(),
            versions: vec!["v1".to_owned()],
        }];
        let mut validation = ResourceValidation::new(&client, LIMITS);
        let found = validation
            .validate(&definition, &definition, &lists, |_| true)
            .await
            .unwrap();
        assert_eq!(found.err(), Some(Unvalidated::Time(LIMITS.time)));
        // Other work of the validation has the same time limit.
        let more = validation.in_time(std::future::pending::<()>()).await;
        assert_eq!(more, Err(Unvalidated::Time(LIMITS.time)));
    }

    #[test]
    fn path_has_only_valid_names() {
        let mut definition = definition();
        assert_eq!(
            path(&definition, "v1").unwrap(),
            "/apis/example.com/v1/jugs"
        );
        path(&definition, "v1/jugs?x=").unwrap_err();
        definition["spec"]["names"]["plural"] = "jugs?watch=true".into();
        path(&definition, "v1").unwrap_err();
    }
}
