//! `values.schema.json` of charts: real helm in the pod reads no other file and sends no request to
//! validate values.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, TcpListener};

use bundle_testkit::file_server::FileResponse;
use serde_json::json;

use super::charts::{LOCAL_CLASS, chart_with, deployment, http_stage, until_failed};
use crate::scenarios::reconcile::sources::http;
use crate::scenarios::reconcile::{apply, installed};

const SCHEMA: &str = "web/values.schema.json";

#[tokio::test(flavor = "multi_thread")]
async fn helm_reads_no_other_file_and_no_url_for_the_schema_of_a_chart() {
    let folder = tempfile::tempdir().unwrap();
    let (cluster, _webhook, server) = http_stage(folder.path()).await;
    // Go programs use no proxy for loopback addresses. Therefore a request to this listener is not
    // prevented by the proxy that the pod sets for helm.
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.set_nonblocking(true).unwrap();
    let url = format!("http://{}/schema?", listener.local_addr().unwrap());
    let install = |name: &'static str, files: &[(&str, &str)]| {
        let response = FileResponse::File(http::archive(files));
        server.respond(&format!("/{name}.tgz"), response);
        let url = format!("https://{}/{name}.tgz", server.host());
        let source = json!({"type": "http", "http": {"url": url}});
        deployment(name, LOCAL_CLASS, &source, &json!({}))
    };

    // The identifiers at the root of a chart and of its dependency are removed.
    let root = json!({"$id": url, "id": url, "properties": {"a": {"$ref": "#"}}}).to_string();
    let mut files = chart_with(SCHEMA, &root);
    let dependency = "apiVersion: v2\nname: db\nversion: 1.0.0\n";
    files.push(("web/charts/db/Chart.yaml", dependency));
    files.push(("web/charts/db/values.schema.json", &root));
    apply(&cluster, &install("root", &files)).await;
    installed(&cluster, "root").await;

    let reference = json!({"$ref": "file:///etc/passwd"});
    let nested = json!({"properties": {"a": {"$id": url, "$ref": "#"}}});
    let old_draft = json!({
        "$schema": "http://json-schema.org/draft-04/schema#",
        "properties": {"a": {"id": url, "allOf": [{"$ref": "#"}]}},
    });
    let data = json!({
        "properties": {"a": {"$ref": "#/default"}},
        "default": {"$id": url, "$ref": "#"},
    });
    for (name, schema, expected) in [
        ("reference", reference, "$ref refers to `file:///etc"),
        ("nested", nested, "/properties/a/$id: the identifier"),
        ("draft4", old_draft, "/properties/a/id: the identifier"),
        ("data", data, "/default/$id: the identifier"),
    ] {
        let schema = schema.to_string();
        apply(&cluster, &install(name, &chart_with(SCHEMA, &schema))).await;
        let expected = format!("values.schema.json: {expected}");
        let message = until_failed(&cluster, name, &expected).await;
        // Each message names a next step.
        assert!(message.contains(" ("), "{message}");
    }

    let connection = listener.accept();
    assert_eq!(connection.unwrap_err().kind(), ErrorKind::WouldBlock);
}
