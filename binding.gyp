# The addon of a checkout (`npm run build:native`): through CMake where a GPU toolkit is found, else the host-only addon with nothing but
# python3, make and g++. Both read native/sources.json.
{
  'variables': {
    'gpu': '<!(node scripts/gpu-toolkit.mjs)',
    'version': '<!(node -p "require(\'./package.json\').version")',
  },
  'conditions': [
    ['gpu == "none"', {
      'targets': [{
        'target_name': 'warpjoin',
        'sources': ['<!@(node scripts/native-sources.mjs host no_gpu binding)'],
        'include_dirs': ['native', '<!(node -p "require(\'node-addon-api\').include_dir")'],
        'defines': ['NAPI_VERSION=8', 'NODE_ADDON_API_CPP_EXCEPTIONS', 'NODE_API_SWALLOW_UNTHROWABLE_EXCEPTIONS', 'NDEBUG',
                    'WARPJOIN_VERSION="<(version)"'],
        'cflags!': ['-fno-exceptions', '-O2'],
        'cflags_cc!': ['-fno-exceptions', '-fno-rtti', '-std=gnu++17', '-std=gnu++20'],
        'cflags_cc': ['-std=c++20', '-O3', '-fexceptions', '-frtti'],
        'conditions': [['target_arch == "x64"', { 'cflags_cc': ['-march=x86-64-v3'] }]],
        'libraries': ['-pthread'],
      }],
    }, {
      'targets': [{
        'target_name': 'warpjoin',
        'type': 'none',
        'actions': [{
          'action_name': 'cmake',
          'inputs': ['<!@(find CMakeLists.txt cmake native -type f)'],
          'outputs': ['build/Release/warpjoin.node'],
          'action': ['node', 'scripts/build-with-cmake.mjs', '<(gpu)'],
        }],
      }],
    }],
  ],
}
