//! IAM Credentials: a service account's tokens for a federated one.
