//! Answers in AWS's shapes: XML of the query interface, JSON of EKS Auth.

use http::StatusCode;
use http::header::HeaderValue;
use serde_json::{Value, json};

pub(super) use crate::reply::{EmulatorReply, html, read_body, reply};

/// STS's namespace.
const NAMESPACE: &str = "https://sts.amazonaws.com/doc/2011-06-15/";

/// The request's id in every answer; no client here reads it.
const REQUEST_ID: &str = "00000000-0000-4000-8000-000000000000";

/// `text` as an element's content.
pub(super) fn escaped(text: &str) -> String {
    let escape = |out: String, c| match c {
        '&' => out + "&amp;",
        '<' => out + "&lt;",
        '>' => out + "&gt;",
        '"' => out + "&quot;",
        '\'' => out + "&apos;",
        c => {
            let mut out = out;
            out.push(c);
            out
        }
    };
    text.chars().fold(String::with_capacity(text.len()), escape)
}

/// An element with content that is XML already.
pub(super) fn element(name: &str, content: &str) -> String {
    format!("<{name}>{content}</{name}>")
}

/// An element with text.
pub(super) fn leaf(name: &str, text: &str) -> String {
    element(name, &escaped(text))
}

/// The answer to `action`, with `result` in its place.
pub(super) fn answered(action: &str, result: &str) -> EmulatorReply {
    let result = element(&format!("{action}Result"), result);
    let about = element("ResponseMetadata", &leaf("RequestId", REQUEST_ID));
    let body = format!("<{action}Response xmlns=\"{NAMESPACE}\">{result}{about}</{action}Response>\n");
    reply(StatusCode::OK, "text/xml", body)
}

/// The error of the query interface.
pub(super) fn refused(status: StatusCode, code: &str, message: &str) -> EmulatorReply {
    let kind = if status.is_server_error() { "Receiver" } else { "Sender" };
    let error = leaf("Type", kind) + &leaf("Code", code) + &leaf("Message", message);
    let body = format!(
        "<ErrorResponse xmlns=\"{NAMESPACE}\">{}{}</ErrorResponse>\n",
        element("Error", &error),
        leaf("RequestId", REQUEST_ID)
    );
    reply(status, "text/xml", body)
}

/// JSON, as EKS Auth labels it.
pub(super) fn json(status: StatusCode, body: &Value) -> EmulatorReply {
    reply(status, "application/json", body.to_string())
}

/// The error of EKS Auth (restJson1: the code in a header, the message in the body).
pub(super) fn json_refused(status: StatusCode, code: &'static str, message: &str) -> EmulatorReply {
    let mut reply = json(status, &json!({ "message": message }));
    reply.headers_mut().insert("x-amzn-errortype", HeaderValue::from_static(code));
    reply
}
