/** diagnose(): each fault that it looks for is planted, one at a time, in a machine of plain values. */
import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { ARROW_RANGE, type Diagnosis, describeDiagnosis, diagnose, diagnoseSystem, NODE_RANGE } from '../../lib/diagnose.js';
import { WarpjoinError } from '../../lib/errors.js';
import { addonOf, findings, problems, testFaults, unloaded } from '../support/diagnosis.js';
import { type FakeSystem, fakeSystem, hostAddon, NVIDIA } from '../support/fake-system.js';

test('a healthy machine without a GPU', async () => {
  const diagnosis = await diagnoseSystem(fakeSystem());
  expect(diagnosis.ok).toBe(true);
  expect(problems(diagnosis.findings)).toEqual([]);
  expect(describeDiagnosis(diagnosis).split('\n')).toEqual([
    'ok       platform         Linux x64, Debian GNU/Linux 12 (bookworm)',
    'ok       processor        Some CPU, 8 logical processors',
    'ok       libc             glibc 2.36',
    'ok       node             Node.js 22.12.0',
    'ok       package manager  npm',
    'ok       addon            for the processor, 0.1.0, from @warpjoin/linux-x64-gnu',
    'ok       apache-arrow     21.2.0',
    'info     gpu              the addon has no code for GPUs, and this machine shows none',
    '                          -> on a machine with GPUs, add @warpjoin/linux-x64-cuda or @warpjoin/linux-x64-rocm',
    'ok       engine           joins and sorts on the processor',
    'ok       memory           64 GiB; engines take up to 50 GiB where no memoryLimit is given',
    'ok       temp directory   /tmp, 100 GiB free',
    'ok       cache directory  /home/user/.cache/warpjoin',
    '',
    'No problems found.',
  ]);
});

test('a healthy machine with GPUs', async () => {
  const all = await findings({ files: NVIDIA, loaded: addonOf([{}, {}]) });
  expect(problems(all)).toEqual([]);
  const messages = Object.fromEntries(all.map(({ check, message }) => [check, message]));
  expect(messages).toMatchObject({
    addon: 'for CUDA, 0.1.0, from @warpjoin/linux-x64-cuda',
    driver: 'NVIDIA 535.104.05, CUDA 13.0; the addon has CUDA 13.0',
    gpu: '2 x NVIDIA H200 (9.0)',
  });
  expect(all.filter(({ check }) => check === 'gpu engine').map(({ message }) => message)).toEqual([
    'joins and sorts on all 2 GPUs',
    'GPUs copy to each other directly',
  ]);
});

describe('software', () => {
  const x64v2 = 'processor\t: 0\nmodel name\t: Old CPU\nflags\t\t: fpu sse2 avx abm\n';
  testFaults([
    {
      fault: 'Windows',
      system: { platform: 'win32', glibc: undefined },
      check: 'platform',
      status: 'error',
      message: /^warpjoin runs on Linux, and this is win32$/,
      remedy: /WSL2/,
    },
    {
      fault: 'macOS',
      system: { platform: 'darwin', glibc: undefined },
      check: 'platform',
      status: 'error',
      message: /darwin/,
      remedy: /docker run/,
    },
    {
      fault: 'a processor without an addon',
      system: { arch: 'riscv64' },
      check: 'platform',
      status: 'error',
      message: /x64 and arm64, and this Node\.js is for riscv64$/,
      remedy: /npm run pack/,
    },
    {
      fault: 'a processor without AVX2',
      system: {
        files: { '/proc/cpuinfo': x64v2 },
        addon: () => expect.fail('an addon that would end the process was loaded'),
      } as FakeSystem,
      check: 'processor',
      status: 'error',
      message: /AVX2.*, and this one lacks avx2, bmi1, bmi2, f16c, fma, movbe$/,
      remedy: /-cpu host/,
      also: ['addon'],
    },
    {
      fault: 'an addon for a newer glibc',
      system: {
        glibc: '2.17',
        loaded: unloaded([
          '@warpjoin/linux-x64-gnu',
          "/lib64/libc.so.6: version `GLIBC_2.28' not found (required by warpjoin.node)",
        ]),
      },
      check: 'libc',
      status: 'error',
      message: /^the addon needs glibc 2\.28, and this is glibc 2\.17$/,
      remedy: /node:22-slim/,
      also: ['addon'],
    },
    {
      fault: 'an addon for a newer libstdc++',
      system: { loaded: unloaded(['build/Release/warpjoin.node', "libstdc++.so.6: version `GLIBCXX_3.4.30' not found"]) },
      check: 'libc',
      status: 'error',
      message: /GLIBCXX_3\.4\.30/,
      remedy: /build warpjoin here/,
      also: ['addon'],
    },
    {
      fault: 'musl',
      system: { glibc: undefined, loaded: unloaded(['@warpjoin/linux-x64-gnu', 'not installed']) },
      check: 'libc',
      status: 'error',
      message: /musl/,
      remedy: /node:22-slim in place of node:22-alpine/,
      also: ['addon'],
    },
    {
      fault: 'an old Node.js',
      system: { versions: { node: '18.20.4' } },
      check: 'node',
      status: 'error',
      message: /^Node\.js 18\.20\.4 is none that warpjoin works with: >=20\.17$/,
      remedy: /nvm install --lts/,
    },
    {
      fault: 'a release of a line before the one that is needed',
      system: { versions: { node: '22.11.0' }, nodeRange: '^20.19 || >=22.12' },
      check: 'node',
      status: 'error',
      message: /22\.11\.0/,
      remedy: /nvm/,
    },
    {
      fault: 'a line of Node.js without fixes',
      system: { versions: { node: '20.20.2' }, now: new Date('2026-11-25') },
      check: 'node',
      status: 'info',
      message: /no fixes since 2026-04-30/,
      remedy: /newer/,
    },
    {
      fault: 'another runtime',
      system: { versions: { node: '22.0.0', bun: '1.2.0' } },
      check: 'node',
      status: 'info',
      message: /bun 1\.2\.0/,
      remedy: /Node\.js/,
    },
    {
      fault: 'optional dependencies left out',
      system: { env: { npm_config_user_agent: 'npm/11.0.0 node/v22.12.0 linux x64', npm_config_omit: 'optional' } },
      check: 'package manager',
      status: 'warning',
      message: /^npm leaves out optional dependencies/,
      remedy: /unset "omit"/,
    },
    {
      fault: 'an apache-arrow that is too old',
      system: { files: { '/project/node_modules/apache-arrow/package.json': '{ "version": "14.0.2" }' } },
      check: 'apache-arrow',
      status: 'error',
      message: /^14\.0\.2 is installed, and warpjoin works with 15 to 21$/,
      remedy: /^run "npm install apache-arrow@21"$/,
    },
    {
      fault: 'an apache-arrow that is too new',
      system: { files: { '/project/node_modules/apache-arrow/package.json': '{ "version": "22.0.0" }' } },
      check: 'apache-arrow',
      status: 'error',
      message: /^22\.0\.0 is installed/,
      remedy: /apache-arrow@21/,
    },
    {
      fault: 'no apache-arrow',
      system: { files: { '/project/node_modules/apache-arrow/package.json': null } },
      check: 'apache-arrow',
      status: 'error',
      message: /not installed/,
      remedy: /npm install apache-arrow/,
    },
    {
      fault: 'two copies of apache-arrow',
      system: { files: { '/project/node_modules/warpjoin/node_modules/apache-arrow/package.json': '{ "version": "18.1.0" }' } },
      check: 'apache-arrow',
      status: 'info',
      message: /two copies: 21\.2\.0 of the project, and 18\.1\.0/,
      remedy: /one version/,
    },
  ]);

  test.each([
    ['Node.js that is new enough', { versions: { node: '20.19.0' }, nodeRange: '^20.19 || >=22.12' }],
    ['a processor that does not tell', { files: { '/proc/cpuinfo': null } }],
    ['arm64', { arch: 'arm64', files: { '/proc/cpuinfo': 'processor : 0\nFeatures : fp asimd\n' } }],
    ['an addon that was built on musl', { glibc: undefined }],
  ] satisfies [string, FakeSystem][])('%s is fine', async (_, system) => {
    expect(problems(await findings(system))).toEqual([]);
  });

  test('nothing tells the package manager', async () => {
    const all = await findings({ files: { '/project/package-lock.json': null } });
    expect(all.find(({ check }) => check === 'package manager')).toMatchObject({
      status: 'info',
      message: expect.stringContaining('none shows'),
    });
  });

  test.each([
    ['pnpm by its agent', { env: { npm_config_user_agent: 'pnpm/9.15.0 npm/? node/v22' } }, 'pnpm 9.15.0'],
    ['yarn by its lock file', { files: { '/project/package-lock.json': null, '/project/yarn.lock': '' } }, 'yarn'],
    [
      'bun by its lock file in a folder above',
      { cwd: '/project/a/b', files: { '/project/package-lock.json': null, '/project/bun.lock': '' } },
      'bun',
    ],
    [
      'pnpm by package.json',
      { files: { '/project/package.json': '{ "packageManager": "pnpm@10.1.0+sha512.ab" }' } },
      'pnpm 10.1.0',
    ],
  ] satisfies [string, FakeSystem, string][])('%s', async (_, system, name) => {
    expect((await findings(system)).find(({ check }) => check === 'package manager')).toMatchObject({
      status: 'ok',
      message: name,
    });
  });
});

describe('addon', () => {
  const gnu = '@warpjoin/linux-x64-gnu';
  testFaults([
    {
      fault: 'its package is missing',
      system: {
        loaded: unloaded(['@warpjoin/linux-x64-cuda', 'not installed'], [gnu, 'not installed']),
      },
      check: 'addon',
      status: 'error',
      message: /^no addon could be loaded \(@warpjoin\/linux-x64-cuda: not installed; @warpjoin\/linux-x64-gnu: not installed\)$/,
      remedy: /^run "npm install @warpjoin\/linux-x64-gnu"$/,
    },
    {
      fault: 'its package is missing, with pnpm',
      system: {
        env: { npm_config_user_agent: 'pnpm/9.15.0 npm/?' },
        arch: 'arm64',
        loaded: unloaded(['@warpjoin/linux-arm64-gnu', 'not installed']),
      },
      check: 'addon',
      status: 'error',
      message: /arm64/,
      remedy: /^run "pnpm add @warpjoin\/linux-arm64-gnu"$/,
    },
    {
      fault: 'its package is missing, with an unknown package manager',
      system: { env: { npm_config_user_agent: 'cnpm/9.4.0 npm/?' }, loaded: unloaded([gnu, 'not installed']) },
      check: 'addon',
      status: 'error',
      message: /not installed/,
      remedy: /^add @warpjoin\/linux-x64-gnu to the project with cnpm$/,
    },
    {
      fault: 'a damaged file',
      system: { loaded: unloaded([gnu, '/x/warpjoin.node: file too short']) },
      check: 'addon',
      status: 'error',
      message: /file too short/,
      remedy: /damaged.*remove node_modules/,
    },
    {
      fault: 'a file system that allows no programs',
      system: { loaded: unloaded([gnu, '/x/warpjoin.node: failed to map segment from shared object']) },
      check: 'addon',
      status: 'error',
      message: /map segment/,
      remedy: /noexec/,
    },
    {
      fault: 'no permission',
      system: { loaded: unloaded([gnu, '/x/warpjoin.node: cannot open shared object file: Permission denied']) },
      check: 'addon',
      status: 'error',
      message: /Permission denied/,
      remedy: /read the file/,
    },
    {
      fault: 'a file for another kind of machine',
      system: { loaded: unloaded([gnu, '/x/warpjoin.node: wrong ELF class: ELFCLASS32']) },
      check: 'addon',
      status: 'error',
      message: /wrong ELF class/,
      remedy: /another kind of machine/,
    },
    {
      fault: 'a file that is cut short',
      system: { loaded: unloaded([gnu, 'the file is damaged: it has 97.7 KiB of at least 5.9 MiB']) },
      check: 'addon',
      status: 'error',
      message: /97\.7 KiB/,
      remedy: /remove node_modules and install again/,
    },
    {
      fault: 'no libstdc++',
      system: { loaded: unloaded([gnu, 'libstdc++.so.6: cannot open shared object file: No such file or directory']) },
      check: 'addon',
      status: 'error',
      message: /libstdc/,
      remedy: /package libstdc\+\+6/,
    },
    {
      fault: 'no ROCm',
      system: {
        loaded: unloaded([
          '@warpjoin/linux-x64-rocm',
          'libamdhip64.so.6: cannot open shared object file: No such file or directory',
        ]),
      },
      check: 'addon',
      status: 'error',
      message: /libamdhip64/,
      remedy: /install ROCm/,
    },
    {
      fault: 'a file that WARPJOIN_ADDON names is not there',
      system: { loaded: unloaded(['WARPJOIN_ADDON=/x', 'there is no such file']) },
      check: 'addon',
      status: 'error',
      message: /WARPJOIN_ADDON=\/x: there is no such file/,
      remedy: /correct WARPJOIN_ADDON/,
    },
    {
      fault: 'a package of another version',
      system: { loaded: unloaded([gnu, 'it is of version 0.0.9, and warpjoin of 0.1.0']) },
      check: 'addon',
      status: 'error',
      message: /is of version 0\.0\.9/,
      remedy: /^run "npm install @warpjoin\/linux-x64-gnu@0\.1\.0"$/,
    },
    {
      fault: 'an addon of another version',
      system: { loaded: { addon: hostAddon({ version: '0.0.9' }), from: gnu } },
      check: 'addon',
      status: 'error',
      message: /^the addon from @warpjoin\/linux-x64-gnu is of version 0\.0\.9, and warpjoin of 0\.1\.0$/,
      remedy: /^run "npm install @warpjoin\/linux-x64-gnu@0\.1\.0"$/,
    },
    {
      fault: 'a build of another version',
      system: { loaded: { addon: hostAddon({ version: '0.0.9' }), from: 'build/Release/warpjoin.node' } },
      check: 'addon',
      status: 'error',
      message: /0\.0\.9/,
      remedy: /npm run build:native/,
    },
    {
      fault: "the GPU's package fails, and the processor's is used",
      system: {
        loaded: {
          tried: [
            { name: '@warpjoin/linux-x64-cuda', reason: 'invalid ELF header' },
            { name: 'x', reason: 'not installed' },
          ],
        },
      },
      check: 'addon',
      status: 'warning',
      message: /^@warpjoin\/linux-x64-cuda was not used: invalid ELF header$/,
      remedy: /damaged/,
    },
    {
      fault: 'it loads, but an engine fails',
      system: { trial: () => Promise.reject(new WarpjoinError('ERR_DEVICE', 'The system gives no thread')) },
      check: 'engine',
      status: 'error',
      message: /fails on the processor: The system gives no thread/,
      remedy: /"memory" and "threads"/,
    },
  ]);
});

describe('diagnose', () => {
  test('finds no error here', async () => {
    const diagnosis = await diagnose();
    expect(diagnosis.findings.filter(({ status }) => status === 'error')).toEqual([]);
    expect(diagnosis.ok).toBe(true);
    for (const check of [
      'platform',
      'processor',
      'libc',
      'node',
      'addon',
      'apache-arrow',
      'gpu',
      'engine',
      'memory',
      'cache directory',
    ]) {
      expect(diagnosis.findings.map((finding) => finding.check)).toContain(check);
    }
  });

  test('a check that fails is a finding', async () => {
    const system = {
      readFile: () => {
        throw new Error('the disk is gone');
      },
      trial: () => {
        throw 'no error at all';
      },
    };
    const diagnosis = await diagnoseSystem({ ...fakeSystem(), ...system });
    expect(diagnosis.findings).toContainEqual({
      check: 'memory',
      status: 'warning',
      message: 'could not be looked at: the disk is gone',
      remedy: expect.any(String),
    });
  });

  test('an addon that throws is none', async () => {
    const addon = () => {
      throw new Error('it throws');
    };
    const { ok, findings } = await diagnoseSystem({ ...fakeSystem(), addon });
    expect(ok).toBe(false);
    expect(findings.find(({ check }) => check === 'addon')).toMatchObject({
      status: 'error',
      message: expect.stringContaining('it throws'),
    });
  });

  test('as text: remedies below, and a sum', () => {
    const diagnosis: Diagnosis = {
      ok: false,
      findings: [
        { check: 'node', status: 'ok', message: 'Node.js 22.12.0' },
        { check: 'addon', status: 'error', message: 'none', remedy: 'install it' },
        { check: 'swap', status: 'warning', message: 'much', remedy: 'less' },
        { check: 'gpu', status: 'warning', message: 'slow', remedy: 'faster' },
      ],
    };
    expect(describeDiagnosis(diagnosis)).toBe(
      [
        'ok       node   Node.js 22.12.0',
        'ERROR    addon  none',
        '                -> install it',
        'WARNING  swap   much',
        '                -> less',
        'WARNING  gpu    slow',
        '                -> faster',
        '',
        '1 error, 2 warnings.',
      ].join('\n'),
    );
    expect(describeDiagnosis({ ok: true, findings: [] })).toBe('\nNo problems found.');
  });

  test('knows what package.json says', () => {
    const { engines, peerDependencies } = JSON.parse(readFileSync('package.json', 'utf8'));
    expect(NODE_RANGE).toBe(engines.node);
    expect(`>=${ARROW_RANGE.from} <${ARROW_RANGE.below}`).toBe(peerDependencies['apache-arrow']);
  });
});
