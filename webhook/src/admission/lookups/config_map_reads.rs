//! Reads of the ConfigMaps that a source names. A spec can name hundreds of ConfigMaps of 1 MiB, and
//! dry runs store nothing. Therefore the number of parallel reads is limited, in total and for each
//! requester, and the data of the ConfigMaps are never in memory. Reconciles have their own limit.

use bundle_cluster::ObjectUrl;
use bundle_core::names::KubeName;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use kube::api::GetParams;
use kube::core::discovery::ApiResource;
use serde::Deserialize;

use crate::budget::{Budget, Pool};
use crate::clients::cluster::WithoutData;

/// Maximum number of parallel reads. One requester can have half of them. The requester with the
/// fewest reads is next.
const MAX_READS: u64 = 4;

/// Limits the number of parallel reads.
pub(super) struct ConfigMapReads(Pool);

impl Default for ConfigMapReads {
    fn default() -> Self {
        Self(Pool::new(MAX_READS))
    }
}

impl ConfigMapReads {
    /// Runs `reading`, which reads a ConfigMap for `requester`. Waits before that while too many
    /// ConfigMaps are being read.
    pub(super) async fn read<T>(
        &self,
        requester: &str,
        reading: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, kube::Error> {
        let turn = self.0.take(1, Budget::half(&self.0, requester)).await;
        // This error does not occur, because a share of one unit fits into the pool.
        let _turn = turn.map_err(|error| kube::Error::Service(error.into()))?;
        reading.await
    }
}

/// The only field of a ConfigMap that a review needs.
#[derive(Deserialize)]
struct ConfigMapState {
    immutable: Option<bool>,
}

/// Returns true if the data of a ConfigMap cannot be changed. The ConfigMap is read without its
/// data. Returns `None` if the ConfigMap does not exist.
pub(super) async fn is_immutable(
    client: &Client,
    namespace: &str,
    name: &KubeName,
) -> Result<Option<bool>, kube::Error> {
    let resource = ApiResource::erase::<ConfigMap>(&());
    let request = ObjectUrl::parse(&resource, Some(namespace), name)
        .and_then(|url| url.requests().get(url.name(), &GetParams::default()));
    let mut request = request.map_err(kube::Error::BuildRequest)?;
    request.extensions_mut().insert(WithoutData);
    match client.request::<ConfigMapState>(request).await {
        Ok(state) => Ok(Some(state.immutable == Some(true))),
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::future;

    use futures::FutureExt as _;
    use http::{Request, Response, StatusCode};
    use kube::client::Body;
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn reads_of_one_requester_leave_half_of_the_reads_to_others() {
        let reads = ConfigMapReads::default();
        let stalled = |requester: &'static str| {
            let reading = future::pending::<Result<(), kube::Error>>();
            Box::pin(reads.read(requester, reading))
        };
        let read = |requester: &'static str| {
            let reading = future::ready(Ok::<_, kube::Error>(()));
            Box::pin(reads.read(requester, reading))
        };
        let mut of_ana: Vec<_> = (0..100).map(|_| stalled("ana")).collect();
        for reading in &mut of_ana {
            assert!(reading.as_mut().now_or_never().is_none());
        }
        assert_eq!(reads.0.used(), MAX_READS / 2);
        assert!(read("ben").now_or_never().is_some());
        let mut of_ben = [stalled("ben"), stalled("ben")];
        for reading in &mut of_ben {
            assert!(reading.as_mut().now_or_never().is_none());
        }
        // A requester without a read is next, although other reads have waited longer.
        let mut more = read("ben");
        let mut of_eve = read("eve");
        assert!(more.as_mut().now_or_never().is_none());
        assert!(of_eve.as_mut().now_or_never().is_none());
        drop(of_ana.remove(0));
        assert!(of_eve.now_or_never().is_some());
        drop((of_ana, of_ben, more));
        assert_eq!(reads.0.used(), 0);
    }

    #[tokio::test]
    async fn config_map_is_read_without_its_data() {
        let missing = json!({
            "kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound",
            "message": "not found",
        });
        let (service, mut server) = tower_test::mock::pair::<Request<Body>, Response<Body>>();
        let client = Client::new(service, "sys");
        let name: KubeName = "one".parse().unwrap();
        for (code, body, expected) in [
            (200, json!({"immutable": true, "data": {}}), Some(true)),
            (200, json!({"immutable": false}), Some(false)),
            (200, json!({"metadata": {}}), Some(false)),
            (404, missing, None),
        ] {
            let answering = async {
                let (request, reply) = server.next_request().await.unwrap();
                let path = request.uri().path();
                assert_eq!(path, "/api/v1/namespaces/sys/configmaps/one");
                assert!(request.extensions().get::<WithoutData>().is_some());
                let body = Body::from(body.to_string().into_bytes());
                let mut response = Response::new(body);
                *response.status_mut() = StatusCode::from_u16(code).unwrap();
                reply.send_response(response);
            };
            let (found, ()) = tokio::join!(is_immutable(&client, "sys", &name), answering);
            assert_eq!(found.unwrap(), expected);
        }
    }
}
