//! Responses in AWS's formats: XML of the query interface, JSON of EKS Auth.

use http::StatusCode;
use http::header::HeaderValue;
use serde_json::{Value, json};

pub(super) use crate::reply::{EmulatorReply, html_reply, read_body, reply};

/// The XML namespace of STS.
const NAMESPACE: &str = "https://sts.amazonaws.com/doc/2011-06-15/";

/// The request id in every response. No client here reads it.
const REQUEST_ID: &str = "00000000-0000-4000-8000-000000000000";

/// Escapes a text as the content of an element.
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

/// Returns an element with XML content.
pub(super) fn element(name: &str, content: &str) -> String {
    format!("<{name}>{content}</{name}>")
}

/// Returns an element with text content.
pub(super) fn text_element(name: &str, text: &str) -> String {
    element(name, &escaped(text))
}

/// Returns the successful response to `action` with this result.
pub(super) fn success_reply(action: &str, result: &str) -> EmulatorReply {
    let result = element(&format!("{action}Result"), result);
    let about = element("ResponseMetadata", &text_element("RequestId", REQUEST_ID));
    let body = format!("<{action}Response xmlns=\"{NAMESPACE}\">{result}{about}</{action}Response>\n");
    reply(StatusCode::OK, "text/xml", body)
}

/// Returns an error response of the query interface.
pub(super) fn error_reply(status: StatusCode, code: &str, message: &str) -> EmulatorReply {
    let kind = if status.is_server_error() { "Receiver" } else { "Sender" };
    let error = text_element("Type", kind) + &text_element("Code", code) + &text_element("Message", message);
    let body = format!(
        "<ErrorResponse xmlns=\"{NAMESPACE}\">{}{}</ErrorResponse>\n",
        element("Error", &error),
        text_element("RequestId", REQUEST_ID)
    );
    reply(status, "text/xml", body)
}

/// Returns a JSON response of EKS Auth.
pub(super) fn json_reply(status: StatusCode, body: &Value) -> EmulatorReply {
    reply(status, "application/json", body.to_string())
}

/// Returns an error response of EKS Auth (restJson1: the code is in a header, the message in the body).
pub(super) fn json_error_reply(status: StatusCode, code: &'static str, message: &str) -> EmulatorReply {
    let mut reply = json_reply(status, &json!({ "message": message }));
    reply.headers_mut().insert("x-amzn-errortype", HeaderValue::from_static(code));
    reply
}
