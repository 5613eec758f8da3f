// What a Node program gets from the metadata server through google-auth-library and gcp-metadata: see ../README.md.
'use strict';

const {inspect} = require('node:util');
const {once} = require('node:events');
const {setTimeout: pause} = require('node:timers/promises');
const metadata = require('gcp-metadata');
const {GoogleAuth} = require('google-auth-library');

const PREFIX = 'https://www.googleapis.com/auth/';

// One for the life of the program and each scope, as a server has it.
const auths = new Map();
function authOf(scope = 'cloud-platform') {
  if (!auths.has(scope)) auths.set(scope, new GoogleAuth({scopes: [PREFIX + scope]}));
  return auths.get(scope);
}

const libraries = {
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

const say = line => console.log(JSON.stringify(line));

async function ask(question, step, word) {
  const begun = performance.now();
  let result;
  try {
    result = {value: await question(word)};
  } catch (error) {
    // As a program that does not catch it shows it: `message` is what most print, the rest what node prints.
    result = {message: error.message, error: inspect(error)};
  }
  say({step, milliseconds: Math.round(performance.now() - begun), ...result});
  return 'value' in result;
}

async function main([library, ...steps]) {
  say({step: 'begin'});
  for (const step of steps) {
    if (step === 'wait') {
      say({step});
      await once(process.stdin, 'data');
      continue;
    }
    const [name, word] = step.replace('until:', '').split('=');
    let tries = step.startsWith('until:') ? 20 : 1;
    while (!(await ask(libraries[library][name], step, word)) && --tries) await pause(1000);
  }
  process.stdin.destroy();
}

main(process.argv.slice(2));
