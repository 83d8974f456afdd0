// Reads {name: XML} from standard input and writes {name: what xml2js makes of it}, with the options that cross-seed uses: none.
const { readFileSync } = require("node:fs");
const { parseStringPromise } = require("xml2js");

async function main() {
    const documents = JSON.parse(readFileSync(0, "utf8"));
    const parsed = {};
    for (const [name, text] of Object.entries(documents)) {
        parsed[name] = await parseStringPromise(text);
    }
    process.stdout.write(JSON.stringify(parsed));
}

main();
