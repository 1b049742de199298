// A registry of packages that has the tarballs of build/pack, and hands every other request on to the usual one.
import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { root } from '../cmake-addon.mjs';
import { run } from './libc.mjs';

/** The packages in a folder of tarballs, by name: { manifest, bytes, file }. */
function packagesIn(folder) {
  const found = new Map();
  for (const file of readdirSync(folder).filter((name) => name.endsWith('.tgz'))) {
    const manifest = JSON.parse(run('tar', ['-xzOf', join(folder, file), 'package/package.json']));
    found.set(manifest.name, { manifest, file, bytes: readFileSync(join(folder, file)) });
  }
  return found;
}

/** What a registry says of a package with one version, whose tarball has these bytes. */
function packument(manifest, tarball, bytes) {
  const { name, version } = manifest;
  const digest = (algorithm, encoding) => createHash(algorithm).update(bytes).digest(encoding);
  const dist = { tarball, integrity: `sha512-${digest('sha512', 'base64')}`, shasum: digest('sha1', 'hex') };
  return { name, 'dist-tags': { latest: version }, versions: { [version]: { ...manifest, dist } } };
}

/** What a registry says of a package for another platform, which was not made here: nobody asks for its tarball. */
function elsewhere(name, url) {
  const [, os, cpu] = /^@warpjoin\/(\w+)-(\w+)-/.exec(name) ?? [];
  const { version } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'));
  return packument({ name, version, os: [os], cpu: [cpu] }, `${url}-/none.tgz`, Buffer.alloc(0));
}

/** Starts it: { url, packages, close }. */
export async function startRegistry(folder = join(root, 'build', 'pack')) {
  const usual = run('npm', ['config', 'get', 'registry']);
  const packages = packagesIn(folder);
  const server = createServer((request, response) => {
    const path = decodeURIComponent(new URL(request.url, 'http://registry').pathname.slice(1));
    const tarball = [...packages.values()].find(({ file }) => path === `-/${file}`);
    const own = packages.get(path);
    if (tarball === undefined) response.setHeader('content-type', 'application/json');
    if (tarball) response.end(tarball.bytes);
    else if (own) {
      response.end(JSON.stringify(packument(own.manifest, `${url}-/${own.file}`, own.bytes)));
    } else if (path.startsWith('@warpjoin/')) response.end(JSON.stringify(elsewhere(path, url)));
    else response.writeHead(302, { location: new URL(request.url.slice(1), usual).href }).end();
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  const url = `http://127.0.0.1:${server.address().port}/`;
  return { url, packages, close: () => server.close() };
}
