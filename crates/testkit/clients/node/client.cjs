// What a Node program gets from the metadata server through each library: see ../README.md.
'use strict';

const {inspect} = require('node:util');
const {once} = require('node:events');
const {setTimeout: pause} = require('node:timers/promises');

// Only what is used is loaded.
const files = {
  'aws-sdk': './aws.cjs',
  'google-auth-library': './google.cjs',
  'gcp-metadata': './google.cjs',
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
  const questions = require(files[library])[library];
  say({step: 'begin'});
  for (const step of steps) {
    if (step === 'wait') {
      say({step});
      await once(process.stdin, 'data');
      continue;
    }
    const [name, word] = step.replace('until:', '').split('=');
    let tries = step.startsWith('until:') ? 20 : 1;
    while (!(await ask(questions[name], step, word)) && --tries) await pause(1000);
  }
  process.stdin.destroy();
}

main(process.argv.slice(2));
