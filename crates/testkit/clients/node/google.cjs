// What google-auth-library and gcp-metadata are asked.
'use strict';

const metadata = require('gcp-metadata');
const {GoogleAuth} = require('google-auth-library');

const PREFIX = 'https://www.googleapis.com/auth/';

// One for the life of the program and each scope, as a server has it.
const auths = new Map();
function authOf(scope = 'cloud-platform') {
  if (!auths.has(scope)) auths.set(scope, new GoogleAuth({scopes: [PREFIX + scope]}));
  return auths.get(scope);
}

module.exports = {
  'google-auth-library': {
    project: () => authOf().getProjectId(),
    email: async () => (await authOf().getCredentials()).client_email,
    token: scope => authOf(scope).getAccessToken(),
    identity: async audience => (await authOf().getIdTokenClient(audience)).idTokenProvider.fetchIdToken(audience),
  },
  'gcp-metadata': {
    'on-gce': async () => String(await metadata.isAvailable()),
    project: () => metadata.project('project-id'),
    zone: () => metadata.instance('zone'),
    token: async scope =>
      (await metadata.instance({property: 'service-accounts/default/token', params: {scopes: PREFIX + scope}}))
        .access_token,
    identity: audience =>
      metadata.instance({property: 'service-accounts/default/identity', params: {format: 'full', audience}}),
  },
};
