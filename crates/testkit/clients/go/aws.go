package main

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials/ec2rolecreds"
	"github.com/aws/aws-sdk-go-v2/feature/ec2/imds"
)

// github.com/aws/aws-sdk-go-v2/config
func configQuestions() questions {
	var loaded *aws.Config
	return questions{
		"credentials": func(ctx context.Context, _ string) (string, error) {
			// A program that was refused its configuration asks for it again; one that has it keeps it.
			if loaded == nil {
				found, err := config.LoadDefaultConfig(ctx)
				if err != nil {
					return "", err
				}
				loaded = &found
			}
			return session(ctx, loaded.Credentials)
		},
		"region": func(ctx context.Context, _ string) (string, error) {
			found, err := config.LoadDefaultConfig(ctx, config.WithEC2IMDSRegion())
			return found.Region, err
		},
	}
}

// github.com/aws/aws-sdk-go-v2/feature/ec2/imds, and the provider on it
func imdsQuestions() questions {
	client := imds.New(imds.Options{})
	provider := aws.NewCredentialsCache(ec2rolecreds.New(func(o *ec2rolecreds.Options) { o.Client = client }))
	return questions{
		"credentials": func(ctx context.Context, _ string) (string, error) { return session(ctx, provider) },
		"region": func(ctx context.Context, _ string) (string, error) {
			found, err := client.GetRegion(ctx, nil)
			if err != nil {
				return "", err
			}
			return found.Region, nil
		},
		"account": func(ctx context.Context, _ string) (string, error) {
			found, err := client.GetInstanceIdentityDocument(ctx, nil)
			if err != nil {
				return "", err
			}
			return found.AccountID, nil
		},
		"profile": func(ctx context.Context, _ string) (string, error) {
			found, err := client.GetIAMInfo(ctx, nil)
			if err != nil {
				return "", err
			}
			return found.InstanceProfileArn, nil
		},
	}
}

func session(ctx context.Context, provider aws.CredentialsProvider) (string, error) {
	found, err := provider.Retrieve(ctx)
	return found.AccessKeyID + " " + found.SessionToken, err
}
