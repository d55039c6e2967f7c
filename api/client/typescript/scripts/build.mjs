// Compiles src into dist, and src with the tests into build.
import { rm } from 'node:fs/promises'
import { spawnSync } from 'node:child_process'
import { fileURLToPath } from 'node:url'

const root = fileURLToPath(new URL('..', import.meta.url))
const compiler = fileURLToPath(import.meta.resolve('typescript/lib/tsc.js'))
for (const [folder, project] of [['dist', 'tsconfig.json'], ['build', 'tsconfig.test.json']]) {
  await rm(new URL(`../${folder}`, import.meta.url), { recursive: true, force: true })
  const { status } = spawnSync(process.execPath, [compiler, '-p', project], { cwd: root, stdio: 'inherit' })
  if (status !== 0) process.exit(status ?? 1)
}
