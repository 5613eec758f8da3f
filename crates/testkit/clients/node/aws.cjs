// What the SDK for JavaScript, version 3, is asked: the chain of providers that its clients have.
'use strict';

const {defaultProvider} = require('@aws-sdk/credential-provider-node');

// One for the life of the program, as a server has it.
const provider = defaultProvider();

module.exports = {
  'aws-sdk': {
    credentials: async () => {
      const found = await provider();
      return `${found.accessKeyId} ${found.sessionToken}`;
    },
  },
};
