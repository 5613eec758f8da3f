//! The table of AWS's client libraries.
//!
//! Current versions, and of Java's also 1.11.500: its fetch on each call is what KIAM's users know, and it has never heard of session
//! tokens.

use super::{Library, Program};

/// All of them.
pub const AWS: [Library; 8] = [
    Library {
        name: "boto3",
        word: "boto3",
        program: Program::Python,
        credentials: CREDENTIALS,
        also: &["region"],
    },
    Library {
        name: "AWS CLI",
        word: "aws-cli",
        program: Program::Python,
        // It shows nobody its session: it says who it is.
        credentials: "caller",
        also: &[],
    },
    Library {
        name: "aws-sdk-go-v2/config",
        word: "config",
        program: Program::Go,
        credentials: CREDENTIALS,
        also: &["region"],
    },
    GO_IMDS,
    JAVA_1,
    Library {
        name: "AWS SDK for Java 2",
        word: "aws-sdk-2",
        program: Program::Java,
        credentials: CREDENTIALS,
        also: &["region"],
    },
    Library {
        name: "AWS SDK for JavaScript 3",
        word: "aws-sdk",
        program: Program::Node,
        credentials: CREDENTIALS,
        also: &[],
    },
    Library {
        name: "aws-config for Rust",
        word: "aws-config",
        program: Program::Rust,
        credentials: CREDENTIALS,
        also: &["region"],
    },
];

/// Go's client of the metadata service and the provider on it. It asks no other endpoint.
pub const GO_IMDS: Library = Library {
    name: "aws-sdk-go-v2/feature/ec2/imds",
    word: "imds",
    program: Program::Go,
    credentials: CREDENTIALS,
    also: &["region", "account", "profile"],
};

/// Version 1.11.500: without session tokens, and without the endpoint of containers.
pub const JAVA_1: Library = Library {
    name: "AWS SDK for Java 1.11",
    word: "aws-sdk-1",
    program: Program::Java,
    credentials: CREDENTIALS,
    also: &["region"],
};

/// The key's id and the session token.
const CREDENTIALS: &str = "credentials";
