// As webhook.py, with the library for Node; NODE_PATH names the folder of the library. The library
// reads a body as JSON once the signature is right, so a body that is no JSON is bad.
const readline = require("node:readline");
const { Webhook } = require("standardwebhooks");

function verdict({ headers, body, secret }) {
  try {
    new Webhook(secret).verify(Buffer.from(body, "base64"), headers);
    return "ok";
  } catch (error) {
    return `bad: ${error.name}: ${error.message}`;
  }
}

readline.createInterface({ input: process.stdin }).on("line", (line) => console.log(verdict(JSON.parse(line))));
