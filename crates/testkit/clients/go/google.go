package main

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"

	"cloud.google.com/go/auth"
	"cloud.google.com/go/auth/credentials"
	"cloud.google.com/go/auth/credentials/idtoken"
	"cloud.google.com/go/compute/metadata"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/google"
)

const prefix = "https://www.googleapis.com/auth/"

// cloud.google.com/go/compute/metadata
func metadataQuestions() questions {
	token := func(ctx context.Context, scope string) (answer struct {
		AccessToken string `json:"access_token"`
		ExpiresIn   int    `json:"expires_in"`
	}, err error) {
		text, err := metadata.GetWithContext(ctx, "instance/service-accounts/default/token?scopes="+prefix+scope)
		if err == nil {
			err = json.Unmarshal([]byte(text), &answer)
		}
		return answer, err
	}
	return questions{
		"on-gce": func(ctx context.Context, _ string) (string, error) {
			return strconv.FormatBool(metadata.OnGCEWithContext(ctx)), nil
		},
		"project":         alone(metadata.ProjectIDWithContext),
		"numeric-project": alone(metadata.NumericProjectIDWithContext),
		"zone":            alone(metadata.ZoneWithContext),
		"instance-name":   alone(metadata.InstanceNameWithContext),
		"instance-id":     alone(metadata.InstanceIDWithContext),
		"hostname":        alone(metadata.HostnameWithContext),
		"attribute":       metadata.InstanceAttributeValueWithContext,
		"email":           metadata.EmailWithContext,
		"scopes": func(ctx context.Context, account string) (string, error) {
			scopes, err := metadata.ScopesWithContext(ctx, account)
			return strings.Join(scopes, " "), err
		},
		"token": func(ctx context.Context, scope string) (string, error) {
			answer, err := token(ctx, scope)
			return answer.AccessToken, err
		},
		"lives": func(ctx context.Context, scope string) (string, error) {
			answer, err := token(ctx, scope)
			return strconv.Itoa(answer.ExpiresIn), err
		},
		"identity": func(ctx context.Context, audience string) (string, error) {
			return metadata.GetWithContext(ctx, "instance/service-accounts/default/identity?format=full&audience="+audience)
		},
	}
}

// cloud.google.com/go/auth
func authQuestions() questions {
	found := map[string]*auth.Credentials{}
	// A program that was refused its credentials asks for them again; one that has them keeps them.
	detect := func(scope string) (*auth.Credentials, error) {
		if found[scope] == nil {
			detected, err := credentials.DetectDefault(&credentials.DetectOptions{Scopes: []string{prefix + scope}})
			if err != nil {
				return nil, err
			}
			found[scope] = detected
		}
		return found[scope], nil
	}
	return questions{
		"project": func(ctx context.Context, _ string) (string, error) {
			detected, err := detect("cloud-platform")
			if err != nil {
				return "", err
			}
			return detected.ProjectID(ctx)
		},
		"token": func(ctx context.Context, scope string) (string, error) {
			detected, err := detect(scope)
			if err != nil {
				return "", err
			}
			return value(detected.Token(ctx))
		},
		"identity": func(ctx context.Context, audience string) (string, error) {
			identity, err := idtoken.NewCredentials(&idtoken.Options{Audience: audience})
			if err != nil {
				return "", err
			}
			return value(identity.Token(ctx))
		},
	}
}

func value(token *auth.Token, err error) (string, error) {
	if err != nil {
		return "", err
	}
	return token.Value, nil
}

// golang.org/x/oauth2/google
func oauth2Questions() questions {
	return questions{
		"project": func(ctx context.Context, _ string) (string, error) {
			found, err := google.FindDefaultCredentials(ctx)
			if err != nil {
				return "", err
			}
			return found.ProjectID, nil
		},
		"token": func(ctx context.Context, scope string) (string, error) {
			found, err := google.FindDefaultCredentials(ctx, prefix+scope)
			if err != nil {
				return "", err
			}
			return fresh(found.TokenSource)
		},
	}
}

func fresh(source oauth2.TokenSource) (string, error) {
	token, err := source.Token()
	if err != nil {
		return "", err
	}
	if !token.Valid() {
		return "", errors.New("a token that is not valid")
	}
	return token.AccessToken, nil
}
