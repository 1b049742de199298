/** Before each file of the suites on GPUs: what plans leave to the host for being small runs there, too. */
import { preferDevices } from '../support/costs.js';

preferDevices();
