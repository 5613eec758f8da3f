//! The table of AWS's client libraries.
//!
//! Current versions, and of Java's also 1.11.500: its fetch on each call is what KIAM's users know, and it has never heard of session
//! tokens.

use super::{ClientLibrary, Program};

/// All of them.
pub const AWS_LIBRARIES: [ClientLibrary; 8] = [
    ClientLibrary {
        name: "boto3",
        word: "boto3",
        program: Program::Python,
        credentials_step: CREDENTIALS,
        other_steps: &["region"],
    },
    ClientLibrary {
        name: "AWS CLI",
        word: "aws-cli",
        program: Program::Python,
        // It shows nobody its session: it says who it is.
        credentials_step: "caller",
        other_steps: &[],
    },
    ClientLibrary {
        name: "aws-sdk-go-v2/config",
        word: "config",
        program: Program::Go,
        credentials_step: CREDENTIALS,
        other_steps: &["region"],
    },
    GO_IMDS,
    JAVA_1,
    ClientLibrary {
        name: "AWS SDK for Java 2",
        word: "aws-sdk-2",
        program: Program::Java,
        credentials_step: CREDENTIALS,
        other_steps: &["region"],
    },
    ClientLibrary {
        name: "AWS SDK for JavaScript 3",
        word: "aws-sdk",
        program: Program::Node,
        credentials_step: CREDENTIALS,
        other_steps: &[],
    },
    ClientLibrary {
        name: "aws-config for Rust",
        word: "aws-config",
        program: Program::Rust,
        credentials_step: CREDENTIALS,
        other_steps: &["region"],
    },
];

/// Go's client of the metadata service and the provider on it. It asks no other endpoint.
pub const GO_IMDS: ClientLibrary = ClientLibrary {
    name: "aws-sdk-go-v2/feature/ec2/imds",
    word: "imds",
    program: Program::Go,
    credentials_step: CREDENTIALS,
    other_steps: &["region", "account", "profile"],
};

/// Version 1.11.500: without session tokens, and without the endpoint of containers.
pub const JAVA_1: ClientLibrary = ClientLibrary {
    name: "AWS SDK for Java 1.11",
    word: "aws-sdk-1",
    program: Program::Java,
    credentials_step: CREDENTIALS,
    other_steps: &["region"],
};

/// The key's id and the session token.
const CREDENTIALS: &str = "credentials";
