// Prints the TypeScript samples of an OpenAPI document as one module, for the compiler.
import { readFile } from 'node:fs/promises'

const { paths, webhooks } = JSON.parse(await readFile(process.argv[2], 'utf8'))
const operations = [...Object.values(paths), ...Object.values(webhooks)].flatMap((item) => Object.values(item))
const samples = operations.flatMap(({ operationId, 'x-codeSamples': samples = [] }) =>
  samples
    .filter(({ lang }) => lang === 'TypeScript')
    .map(({ source }) => `export async function ${operationId}(client: Client, site: string, secret: string) {\n${source}\n}\n`),
)
if (samples.length < 10) throw new Error(`the document has only ${samples.length} samples in TypeScript`)
console.log(`import { parseEvent, webhookHandler, type Client } from '@partnerbilling/client'\n\n${samples.join('\n')}`)
