//! The exchange of a Kubernetes token at the security token service.
