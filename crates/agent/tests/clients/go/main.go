// What a Go program gets from the metadata server that GCE_METADATA_HOST names, as one JSON object.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"

	"cloud.google.com/go/compute/metadata"
	"golang.org/x/oauth2/google"
)

func must(name string, value string, err error) string {
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
	return value
}

func main() {
	ctx := context.Background()
	audience := os.Args[1]
	get := func(suffix string) string {
		value, err := metadata.GetWithContext(ctx, suffix)
		return must(suffix, value, err)
	}
	answers := map[string]any{"on_gce": metadata.OnGCE()}
	for name, read := range map[string]func(context.Context) (string, error){
		"project":         metadata.ProjectIDWithContext,
		"numeric_project": metadata.NumericProjectIDWithContext,
		"zone":            metadata.ZoneWithContext,
		"instance_name":   metadata.InstanceNameWithContext,
		"instance_id":     metadata.InstanceIDWithContext,
		"hostname":        metadata.HostnameWithContext,
	} {
		value, err := read(ctx)
		answers[name] = must(name, value, err)
	}
	email, err := metadata.EmailWithContext(ctx, "default")
	answers["email"] = must("email", email, err)
	scopes, err := metadata.ScopesWithContext(ctx, "default")
	must("scopes", "", err)
	answers["scopes"] = scopes
	cluster, err := metadata.InstanceAttributeValueWithContext(ctx, "cluster-name")
	answers["cluster"] = must("cluster-name", cluster, err)
	var token map[string]any
	if err := json.Unmarshal([]byte(get("instance/service-accounts/default/token")), &token); err != nil {
		must("token", "", err)
	}
	answers["token"] = token["access_token"]
	answers["expires_in"] = token["expires_in"]
	// What every Google client library for Go does when it is given no credentials.
	found, err := google.FindDefaultCredentials(ctx, "https://www.googleapis.com/auth/cloud-platform")
	must("default credentials", "", err)
	fetched, err := found.TokenSource.Token()
	must("default token", "", err)
	answers["oauth2_token"], answers["oauth2_project"] = fetched.AccessToken, found.ProjectID
	answers["oauth2_valid"] = fetched.Valid()
	answers["identity"] = get("instance/service-accounts/default/identity?format=full&audience=" + url.QueryEscape(audience))
	must("output", "", json.NewEncoder(os.Stdout).Encode(answers))
}
